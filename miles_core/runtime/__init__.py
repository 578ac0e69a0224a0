"""Where processes live: the `local` runtime, its worker bootstrap, and typed clients of remote engines and trainers."""
