"""``coldiron init``: a cluster.yml to begin with, and the policy beside it, from a few answers.

``answers`` holds what was answered and lays out the addresses, ``text`` makes the files' text of it, ``cli`` asks.
"""
