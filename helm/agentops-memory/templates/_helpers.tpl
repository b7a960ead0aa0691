{{/* The one name of everything: agents know the Service by it, whatever the release is called. */}}
{{- define "memory.name" -}}
agentops-memory
{{- end }}

{{/* What the Service, the Deployment and the policies choose the pod by. */}}
{{- define "memory.selector" -}}
app.kubernetes.io/name: {{ include "memory.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: memory
{{- end }}

{{- define "memory.testLabels" -}}
app.kubernetes.io/name: {{ include "memory.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end }}

{{/* Labels of everything. */}}
{{- define "memory.labels" -}}
{{- $own := include "memory.selector" . | fromYaml }}
{{- $own = set $own "app.kubernetes.io/part-of" "agentops" }}
{{- $own = set $own "app.kubernetes.io/managed-by" .Release.Service }}
{{- $own = set $own "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $own = set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) }}
{{- toYaml (merge $own (default dict .Values.commonLabels)) }}
{{- end }}

{{- define "memory.image" -}}
{{- $image := .image }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default .version $image.tag) }}
{{- end }}
{{- end }}

{{- define "memory.claim" -}}
{{- default (include "memory.name" .) .Values.persistence.existingClaim }}
{{- end }}

{{/* Whether PostgreSQL holds everything; then there is no file. */}}
{{- define "memory.isOnDatabase" -}}
{{- if .Values.database.existingSecret }}yes{{ end }}
{{- end }}

{{/* Whether an autoscaler decides how many pods there are: it leaves a stopped service alone. */}}
{{- define "memory.isScaled" -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.replicaCount) 0) }}yes{{ end }}
{{- end }}

{{- define "memory.isReplicated" -}}
{{- if or (include "memory.isScaled" .) (gt (int .Values.replicaCount) 1) }}yes{{ end }}
{{- end }}

{{/* Where a pod that is not ready is asked: the only one says why, and others serve in its place. */}}
{{- define "memory.publishNotReady" -}}
{{- if kindIs "bool" .Values.service.publishNotReadyAddresses }}{{ .Values.service.publishNotReadyAddresses }}
{{- else }}{{ not (include "memory.isOnDatabase" .) }}
{{- end }}
{{- end }}

{{- define "memory.backupClaim" -}}
{{- default (printf "%s-backup" (include "memory.name" .)) .Values.backup.existingClaim }}
{{- end }}

{{- define "memory.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "memory.name" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "memory.auth" -}}
{{- default (ternary "keys" "none" (ne .Values.keys.existingSecret "")) .Values.auth }}
{{- end }}

{{/* The pause, the drain, then what the service may take by itself (15 s for what it accepted, 2 s for traces), and 3 s. */}}
{{- define "memory.leastGrace" -}}
{{- add (mul 2 (int .Values.drainSeconds)) 20 }}
{{- end }}

{{- define "memory.grace" -}}
{{- default (include "memory.leastGrace" .) .Values.terminationGracePeriodSeconds | int }}
{{- end }}

{{/* What is behind the name or the address, before any path: the schema wants a port there. */}}
{{- define "memory.otlpPort" -}}
{{- regexReplaceAll "^(https?://)?([^/:]+|\\[[^/]+\\]):([0-9]+)(/.*)?$" .Values.otlp.endpoint "${3}" }}
{{- end }}

{{/* The variables of the chart's own values, and those of settings. */}}
{{- define "memory.variables" -}}
{{- $own := dict
      "MEMORY_LISTEN" ":7437"
      "MEMORY_AUTH" (include "memory.auth" .)
      "MEMORY_DRAIN" (printf "%ds" (int .Values.drainSeconds))
      "MEMORY_METRICS" .Values.metrics.mode }}
{{- if include "memory.isOnDatabase" . }}
{{- $own = set $own "MEMORY_DATABASE_POOL" (int .Values.database.pool | toString) }}
{{- with .Values.database.retention }}
{{- $own = set $own "MEMORY_DATABASE_RETENTION" . }}
{{- end }}
{{- else }}
{{- $own = set $own "MEMORY_DB_PATH" "/data/memory.db" }}
{{- end }}
{{- if .Values.keys.existingSecret }}
{{- $own = set $own "MEMORY_KEYS_FILE" (printf "/etc/agentops-memory/keys/%s" .Values.keys.key) }}
{{- end }}
{{- if .Values.backup.enabled }}
{{- $own = set $own "MEMORY_BACKUP_DIR" "/backup" }}
{{- $own = set $own "MEMORY_BACKUP_EVERY" .Values.backup.every }}
{{- $own = set $own "MEMORY_BACKUP_KEEP" (int .Values.backup.keep | toString) }}
{{- end }}
{{- if .Values.otlp.endpoint }}
{{- $own = set $own "OTEL_EXPORTER_OTLP_ENDPOINT" .Values.otlp.endpoint }}
{{- $own = set $own "OTEL_EXPORTER_OTLP_PROTOCOL" .Values.otlp.protocol }}
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- $own = set $own $name (include "memory.text" $value) }}
{{- end }}
{{- with .Values.settings }}{{ with .MEMORY_RATE_LIMIT }}
{{- $own = set $own "MEMORY_RATE_LIMIT" (include "memory.rateLimit" (dict "root" $ "limit" .)) }}
{{- end }}{{ end }}
{{- toYaml $own }}
{{- end }}

{{/* Each pod counts by itself: its part of the limit, rounded up. How many an autoscaler makes is not known here. */}}
{{- define "memory.rateLimit" -}}
{{- $parts := splitList "/" .limit }}
{{- $pods := ternary 1 (max 1 (int .root.Values.replicaCount)) (eq (include "memory.isScaled" .root) "yes") }}
{{- printf "%d/%s" (divf (first $parts) $pods | ceil | int) (last $parts) }}
{{- end }}

{{/* A value as the service reads it: YAML takes on and off for booleans, and Helm every number for a fraction. */}}
{{- define "memory.text" -}}
{{- if kindIs "bool" . }}{{ ternary "on" "off" . }}
{{- else if kindIs "string" . }}{{ . }}
{{- else }}{{ int64 . }}
{{- end }}
{{- end }}

{{/* Pod Security `restricted`, and the user that the image has. */}}
{{- define "memory.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65534
runAsGroup: 65534
fsGroup: 65534
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "memory.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
