{{- define "weir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "weir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "weir.labels" -}}
{{ include "weir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "weir.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "weir.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "weir.tokens" -}}
{{ .Values.tokens.existingSecret | default (printf "%s-tokens" (include "weir.name" .)) }}
{{- end }}

{{- define "weir.adminTls" -}}
{{- if and .Values.tls.secretName .Values.tls.admin }}yes{{ end -}}
{{- end }}

{{- define "weir.with" -}}
{{- /* (list ADDRESS OPTION): the address with one more option */ -}}
{{ index . 0 }}{{ contains "?" (index . 0) | ternary "&" "?" }}{{ index . 1 }}
{{- end }}

{{- define "weir.store" -}}
{{- $address := .Values.store.address }}
{{- if .Values.store.passwordSecret.name }}{{ $address = include "weir.with" (list $address "password_file=/etc/weir/store-password/password") }}{{ end }}
{{- if .Values.store.caSecret.name }}{{ $address = include "weir.with" (list $address "ca=/etc/weir/store-ca/ca.crt") }}{{ end }}
{{- $address }}
{{- end }}

{{- define "weir.rules" -}}
{{- with .Values.rules.database }}
{{- if .address }}
{{- .passwordSecret.name | empty | not | ternary (include "weir.with" (list .address "password_file=/etc/weir/database-password/password")) .address }}
{{- else }}/etc/weir/rules/rules.yaml{{ end }}
{{- end }}
{{- end }}

{{- define "weir.adminHosts" -}}
{{- $name := printf "%s-admin" (include "weir.name" .) }}
{{- $ns := .Release.Namespace }}
{{- concat (list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns)) .Values.adminHosts | join "," }}
{{- end }}

{{- define "weir.check" -}}
{{- $v := .Values }}
{{- if and $v.data.existingClaim (or (ne $v.kind "Deployment") (gt (int $v.replicas) 1)) }}
{{- fail "data.existingClaim needs kind: Deployment and replicas: 1, since two pods must not share a data folder" }}
{{- end }}
{{- if and $v.cells.shared.enabled (ne $v.kind "DaemonSet") }}
{{- fail "cells.shared needs kind: DaemonSet, so that each node has one pod that owns the cells" }}
{{- end }}
{{- if and $v.networkPolicy.enabled (or $v.store.address $v.rules.database.address) (not $v.networkPolicy.egress) }}
{{- fail "networkPolicy.egress must allow the store and the database, or the pods cannot reach them; or set networkPolicy.enabled: false" }}
{{- end }}
{{- if and $v.tls.requireClientCertificates (not (and $v.tls.secretName $v.tls.clientAuthorities.name)) }}
{{- fail "tls.requireClientCertificates needs tls.secretName and tls.clientAuthorities.name" }}
{{- end }}
{{- if and $v.serviceMonitor.enabled $v.tokens.existingSecret (not $v.serviceMonitor.tokenSecret.name) }}
{{- fail "with tokens.existingSecret, serviceMonitor.tokenSecret.name must name the Secret with the token itself" }}
{{- end }}
{{- end }}
