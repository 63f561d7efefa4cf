"""Grafana's dashboards as code.

``parts`` and the modules beside it make them, by Grafana's own package of builders, which is there in a checkout only;
``python -m coldiron.dashboards`` writes what they make to roles/grafana/files/dashboards. ``read`` and ``check`` take
the written files and need nothing else: they say what a dashboard asks for, and whether a server has an answer.
"""
