FROM python:3.13-slim AS build
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# What the service needs comes first: a change in its own code leaves this layer as it is.
COPY pyproject.toml ./
COPY service/client/pyproject.toml service/client/
RUN python -m venv --without-pip /opt/agentops-memory \
 && python -c "import tomllib; p, c = (tomllib.load(open(f'{at}pyproject.toml', 'rb'))['project'] for at in ('', 'service/client/')); print(*p['dependencies'], *(it for extra in ('otlp', 'postgresql') for it in p['optional-dependencies'][extra]), *c['dependencies'], sep='\n')" > requirements.txt \
 && python -m pip --python /opt/agentops-memory/bin/python install --no-compile -r requirements.txt

COPY README.md LICENSE ./
COPY service ./service
# The root will be read-only, so the bytecode is made here, valid whatever a copy's time stamps.
RUN python -m pip --python /opt/agentops-memory/bin/python install --no-compile --no-deps ./service/client . \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/agentops-memory/lib


FROM python:3.13-slim
# The base comes without bytecode; a start would compile the standard library each time.
RUN python -m compileall -q --invalidation-mode unchecked-hash \
      -x 'site-packages|dist-packages|idlelib|tkinter|turtledemo|/test/' \
      "$(python -c "import sysconfig; print(sysconfig.get_path('stdlib'))")" \
 && install -d -o 65534 -g 65534 /data /backup
COPY --from=build /opt/agentops-memory /opt/agentops-memory

ENV PATH=/opt/agentops-memory/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MEMORY_LISTEN=:7437 \
    MEMORY_DB_PATH=/data/memory.db \
    MEMORY_AUTH=none

USER 65534:65534
WORKDIR /data
VOLUME /data
EXPOSE 7437
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
  CMD ["agentops-memory", "health"]
ENTRYPOINT ["agentops-memory"]
CMD ["serve"]
