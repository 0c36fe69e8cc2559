"""Data for operators: Prometheus metrics, OpenTelemetry traces and the server's log.

Enters: journal entries and requests. Leaves: `/metrics`, spans, `runtime/logs/server.log`. Read `metrics.py` first.
"""
