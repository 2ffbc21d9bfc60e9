workers = 2
graceful_timeout = 30
raw_env = ["GREETING=welcome"]
