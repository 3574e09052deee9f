"""The commands of `isentrope`: one light module each; heavy imports happen in `run`."""
