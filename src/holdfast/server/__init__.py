"""The task server: one process serves the API, the events and the dashboard.

Enters: HTTP requests. Leaves: answers, events as they become durable, and the files of the page.
It knows no agent. Changes are posted to the data root's owner and answered once they are durable; reads are
answered from the state in memory and from files. Nothing is loaded here before somebody serves.
Read `app.py` first: the steps of every request; the operations are in `routes/`. `access/` says who
may ask for what, `observability/` is what operators collect.
"""
