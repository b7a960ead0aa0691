{{/* What cannot be right is refused before anything is made of it. */}}
{{- define "memory.refusals" -}}
{{- with .Values }}
{{- if and .terminationGracePeriodSeconds (lt (int .terminationGracePeriodSeconds) (include "memory.leastGrace" $ | int)) }}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short; with drainSeconds %d the service needs %s." (int .terminationGracePeriodSeconds) (int .drainSeconds) (include "memory.leastGrace" $)) }}
{{- end }}
{{- if and (eq .auth "none") .keys.existingSecret }}
{{- fail "auth: none lets everybody in when the keys are gone; with keys.existingSecret leave it empty." }}
{{- end }}
{{- if and (or .ingress.enabled (ne .service.type "ClusterIP")) (ne (include "memory.auth" $) "keys") }}
{{- fail "auth: whoever is outside the cluster would be let in without a key; set keys.existingSecret, or auth=keys once there is a key." }}
{{- end }}
{{- if and .ingress.enabled (not .ingress.hosts) }}
{{- fail "ingress.hosts: name at least one host." }}
{{- end }}
{{- include "memory.refusals.monitor" $ }}
{{- if and .litestream.enabled (not .litestream.url) }}
{{- fail "litestream.url: say where the copy is to lie, such as s3://bucket/memory." }}
{{- end }}
{{- if and .persistence.existingClaim (not .persistence.enabled) }}
{{- fail "persistence.existingClaim: it is not used while persistence.enabled is false." }}
{{- end }}
{{- include "memory.refusals.backup" $ }}
{{- include "memory.refusals.database" $ }}
{{- end }}
{{- $taken := include "memory.variables" . | fromYaml }}
{{- $tracing := list "OTEL_EXPORTER_OTLP_ENDPOINT" "OTEL_EXPORTER_OTLP_PROTOCOL" }}
{{- range .Values.extraEnv }}
{{- if or (hasKey $taken .name) (hasPrefix "MEMORY_" .name) (has .name $tracing) }}
{{- fail (printf "extraEnv: %s has a value of its own in this chart, or belongs into settings." .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "memory.refusals.backup" -}}
{{- with .Values }}
{{- if and .backup.existingClaim (not .backup.enabled) }}
{{- fail "backup.existingClaim: it is not used while backup.enabled is false." }}
{{- end }}
{{- if and .backup.enabled .persistence.enabled (eq (include "memory.backupClaim" $) (include "memory.claim" $)) }}
{{- fail "backup.existingClaim: backups in the claim of the data are lost with it; name another." }}
{{- end }}
{{- end }}
{{- end }}

{{- define "memory.refusals.database" -}}
{{- with .Values }}
{{- if .database.existingSecret }}
{{- if .persistence.existingClaim }}
{{- fail "persistence.existingClaim: it is not used with database.existingSecret." }}
{{- end }}
{{- if or .backup.enabled .litestream.enabled }}
{{- fail "backup.enabled, litestream.enabled: with database.existingSecret the database is backed up by its own means, such as pg_dump." }}
{{- end }}
{{- if .keys.existingSecret }}
{{- fail "keys.existingSecret: with database.existingSecret the keys are in the database; make one in a pod, and set auth=keys." }}
{{- end }}
{{- end }}
{{- if lt (int .autoscaling.maxReplicas) (int .autoscaling.minReplicas) }}
{{- fail "autoscaling.maxReplicas: it is less than autoscaling.minReplicas." }}
{{- end }}
{{- end }}
{{- end }}

{{- define "memory.refusals.monitor" -}}
{{- $auth := include "memory.auth" . }}
{{- with .Values }}
{{- if .serviceMonitor.enabled }}
{{- if eq .metrics.mode "off" }}
{{- fail "serviceMonitor.enabled: there is nothing to read while metrics.mode is off." }}
{{- end }}
{{- if and (eq $auth "keys") (eq .metrics.mode "keys") (not .serviceMonitor.bearerTokenSecret.name) }}
{{- fail "serviceMonitor.bearerTokenSecret.name: where there are keys Prometheus needs one, or metrics.mode=open." }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
