"""The simulator: a recipe's real schedule, rollout, buffer and policies, against a virtual clock and modelled engines."""
