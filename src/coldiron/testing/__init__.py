"""The harness of the roles' tests: testinfra over an inventory, sabotage, scenarios and repository rules."""
