"""Who the variants are fetched for."""

from __future__ import annotations

import json
from typing import Any

from .errors import InvalidArgumentError


class User:
    """What is known of a user; everything is optional, None is left out of the request.

    Attributes beyond these are sent as they are. A fetch only reads the user, and keeps nothing.
    """

    def __init__(
        self,
        device_id: str | None = None,
        user_id: str | None = None,
        country: str | None = None,
        city: str | None = None,
        region: str | None = None,
        dma: str | None = None,
        language: str | None = None,
        platform: str | None = None,
        version: str | None = None,
        os: str | None = None,
        device_manufacturer: str | None = None,
        device_brand: str | None = None,
        device_model: str | None = None,
        carrier: str | None = None,
        library: str | None = None,
        ip_address: str | None = None,
        user_properties: dict[str, Any] | None = None,
        groups: dict[str, list[str]] | None = None,
        group_properties: dict[str, dict[str, dict[str, Any]]] | None = None,
        group_cohort_ids: dict[str, dict[str, list[str]]] | None = None,
        cohort_ids: list[str] | None = None,
    ) -> None:
        """Takes the fields by the service's names.

        :param user_properties: any JSON, by name
        :param groups: names of groups, by the type of group
        :param group_properties: by type, name of the group, and name of the property
        :param group_cohort_ids: by type and name of the group
        """
        self.device_id = device_id
        self.user_id = user_id
        self.country = country
        self.city = city
        self.region = region
        self.dma = dma
        self.language = language
        self.platform = platform
        self.version = version
        self.os = os
        self.device_manufacturer = device_manufacturer
        self.device_brand = device_brand
        self.device_model = device_model
        self.carrier = carrier
        self.library = library
        self.ip_address = ip_address
        self.user_properties = user_properties
        self.groups = groups
        self.group_properties = group_properties
        self.group_cohort_ids = group_cohort_ids
        self.cohort_ids = cohort_ids

    def add_group_cohort_ids(self, group_type: str, group_name: str, cohort_ids: list[str]) -> None:
        """Says which cohorts a group of the user is in."""
        if self.group_cohort_ids is None:
            self.group_cohort_ids = {}
        self.group_cohort_ids.setdefault(group_type, {})[group_name] = cohort_ids

    def to_json(self) -> str:
        """The user as the service reads it. InvalidArgumentError if a value is no JSON."""
        return _json(self)

    def __str__(self) -> str:
        return self.to_json()


def _plain(value: Any) -> Any:
    """What JSON has no word for: sets are lists, other objects their attributes."""
    return list(value) if isinstance(value, (set, frozenset)) else vars(value)


# Made once: json.dumps with arguments makes an encoder for each call. That makes one in C for each
# call, so that texts, which most values are, are written without.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain)
_quoted = json.encoder.encode_basestring


def _json(user: object) -> str:
    try:
        known = [
            f"{_quoted(name)}:{_quoted(value)}"
            if type(name) is type(value) is str
            else _ENCODER.encode({name: value})[1:-1]
            for name, value in vars(user).items()
            if value is not None
        ]
        return "{" + ",".join(known) + "}"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the user cannot be written as JSON: {error}") from error


def encoded(user: object) -> bytes:
    """The JSON of any object with the attributes of a User."""
    try:
        return _json(user).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"the user has text that is no Unicode: {error.reason}"
        ) from None
