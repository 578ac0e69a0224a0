"""The rollout wing: scheduler, generators, rewards, filters, the buffer and the core's own data source."""
