"""OpenWOP agent memory."""
