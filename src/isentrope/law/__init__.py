"""The law R = -a e^H + b: fit, forecast, scale. Needs numpy only."""
