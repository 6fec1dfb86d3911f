"""The server under test, as if it were in a container."""

import os


class RedisContainer:
    port = 6379

    def __init__(self, image: str):
        self.image = image

    def __enter__(self) -> "RedisContainer":
        return self

    def __exit__(self, *_):
        pass

    def get_container_host_ip(self) -> str:
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        return int(os.environ["APPS_PORT"])
