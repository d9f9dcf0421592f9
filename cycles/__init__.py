"""The estimator: how long a program takes on a machine, without simulating its logic."""
