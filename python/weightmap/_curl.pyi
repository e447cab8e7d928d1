import typing

def opener(url: str, connections: int, retries: int, deadline_milliseconds: int, headers: list[str], signer: typing.Callable[[str, bool], str] | None, unproven: bool, /) -> typing.Any:
    """What opens this URL, for _core.url_source()."""
