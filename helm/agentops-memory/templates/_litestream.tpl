{{/* The configuration of litestream 0.5. */}}
{{- define "memory.litestream" -}}
{{- $replica := merge (dict "url" .Values.litestream.url) (default dict .Values.litestream.replica) }}
{{- $database := dict "path" "/data/memory.db" "replica" $replica }}
{{- toYaml (dict "snapshot" .Values.litestream.snapshot "dbs" (list $database)) }}
{{- end }}

{{/* Where there is no database, the copy; where there is no copy either, nothing. */}}
{{- define "memory.restore" -}}
- name: restore
  {{- include "memory.litestream.container" . | nindent 2 }}
  args: [restore, -if-db-not-exists, -if-replica-exists, -config, /etc/litestream/litestream.yml, /data/memory.db]
{{- end }}

{{- define "memory.replicate" -}}
- name: litestream
  {{- include "memory.litestream.container" . | nindent 2 }}
  args: [replicate, -config, /etc/litestream/litestream.yml]
  lifecycle:
    preStop:
      exec:  # it ends after the service, and copies what that still saves
        command: [sleep, {{ add (mul 2 (int .Values.drainSeconds)) 2 | quote }}]
{{- end }}

{{- define "memory.litestream.container" -}}
image: {{ include "memory.image" (dict "image" .Values.litestream.image) | quote }}
imagePullPolicy: {{ .Values.litestream.image.pullPolicy }}
{{- with .Values.litestream.existingSecret }}
envFrom:
  - secretRef:
      name: {{ . | quote }}
{{- end }}
resources:
  {{- toYaml .Values.litestream.resources | nindent 2 }}
securityContext:
  {{- include "memory.containerSecurity" . | nindent 2 }}
volumeMounts:
  - name: data
    mountPath: /data
  - name: litestream
    mountPath: /etc/litestream
    readOnly: true
{{- end }}
