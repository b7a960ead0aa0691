{{/* The configuration of litestream 0.5. */}}
{{- define "memory.litestream" -}}
{{- $options := default dict .Values.litestream.replica }}
{{- $url := trimSuffix "/" .Values.litestream.url }}
{{- $default := merge (dict "url" $url) $options }}
{{- $databases := list (dict "path" "/data/memory.db" "replica" $default) }}
{{- range .Values.litestream.tenants }}
{{- $replica := merge (dict "url" (printf "%s/tenants/%s" $url .)) $options }}
{{- $databases = append $databases (dict "path" (include "memory.tenant" .) "replica" $replica) }}
{{- end }}
{{- toYaml (dict "snapshot" .Values.litestream.snapshot "dbs" $databases) }}
{{- end }}

{{- define "memory.tenant" -}}
/data/memory.db.tenants/{{ . }}.db
{{- end }}

{{/* Where there is no database, the copy; where there is no copy either, nothing. */}}
{{- define "memory.restore" -}}
{{- include "memory.restore.one" (dict "root" . "name" "restore" "database" "/data/memory.db") }}
{{- range $number, $tenant := .Values.litestream.tenants }}
{{- $name := printf "restore-%d" (add1 $number) }}
{{ include "memory.restore.one" (dict "root" $ "name" $name "database" (include "memory.tenant" $tenant)) }}
{{- end }}
{{- end }}

{{- define "memory.restore.one" -}}
- name: {{ .name }}
  {{- include "memory.litestream.container" .root | nindent 2 }}
  args: [restore, -if-db-not-exists, -if-replica-exists, -config, /etc/litestream/litestream.yml, {{ .database }}]
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
