"""What an alert may do by itself: its node is drained and looked at, and a person does the rest."""
