"""The machine in time: how long a program takes, without simulating its logic."""
