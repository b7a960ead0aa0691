{{/* The container of the service. */}}
{{- define "memory.container" -}}
- name: memory
  image: {{ include "memory.image" (dict "image" .Values.image "version" .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  ports:
    - name: http
      containerPort: 7437
  env:
    {{- range $name, $value := include "memory.variables" . | fromYaml }}
    - name: {{ $name }}
      value: {{ $value | quote }}
    {{- end }}
    {{- if include "memory.isOnDatabase" . }}
    - name: MEMORY_DATABASE_URL
      valueFrom:
        secretKeyRef:
          name: {{ .Values.database.existingSecret | quote }}
          key: {{ .Values.database.key | quote }}
    {{- end }}
    {{- with .Values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- include "memory.probes" . | nindent 2 }}
  {{- if gt (int .Values.drainSeconds) 0 }}
  lifecycle:
    preStop:
      exec:
        command: [sleep, {{ int .Values.drainSeconds | quote }}]
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "memory.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: data
      mountPath: /data
    {{- if .Values.backup.enabled }}
    - name: backup
      mountPath: /backup
    {{- end }}
    {{- if .Values.keys.existingSecret }}
    - name: keys  # the folder, as a file mounted by subPath would never change
      mountPath: /etc/agentops-memory/keys
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* A start may take an upgrade of the file, a busy disk the seconds of a probe; a dead process is gone in 90 s. */}}
{{- define "memory.probes" -}}
startupProbe:
  httpGet:
    path: /health/startup
    port: http
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: {{ divf .Values.startupSeconds 5 | ceil | int }}
livenessProbe:
  httpGet:
    path: /health/live
    port: http
  periodSeconds: 30
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /health/ready
    port: http
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{- define "memory.volumes" -}}
- name: data  # with a database large bodies alone, while they are received
  {{- if and .Values.persistence.enabled (not (include "memory.isOnDatabase" .)) }}
  persistentVolumeClaim:
    claimName: {{ include "memory.claim" . | quote }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ include "memory.text" .Values.persistence.size | quote }}
  {{- end }}
{{- if .Values.backup.enabled }}
- name: backup
  persistentVolumeClaim:
    claimName: {{ include "memory.backupClaim" . | quote }}
{{- end }}
{{- if .Values.keys.existingSecret }}
- name: keys
  secret:
    secretName: {{ .Values.keys.existingSecret | quote }}
    defaultMode: 0440  # root's, and readable by the pod's group
{{- end }}
{{- if .Values.litestream.enabled }}
- name: litestream
  configMap:
    name: {{ include "memory.name" . }}-litestream
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
