"""Loops that bring objects to what their specs say. They write through the loopback client only."""
