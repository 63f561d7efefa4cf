"""``coldiron verify``: the roles' own tests against the live cluster, looking and never touching."""
