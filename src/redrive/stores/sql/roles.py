"""What of the store contract is written once for both databases."""

from __future__ import annotations

from redrive.stores.sql.access import AccessRole
from redrive.stores.sql.audit import AuditRole
from redrive.stores.sql.calling import CallingRole
from redrive.stores.sql.causes import CausesRole
from redrive.stores.sql.encrypting import EncryptingRole
from redrive.stores.sql.erasing import ErasingRole
from redrive.stores.sql.events import EventsRole
from redrive.stores.sql.figures import FiguresRole
from redrive.stores.sql.finding import FindingRole
from redrive.stores.sql.gates import GatesRole
from redrive.stores.sql.inspection import InspectionRole
from redrive.stores.sql.intervention import InterventionRole
from redrive.stores.sql.lanes import LanesRole
from redrive.stores.sql.letters import LettersRole
from redrive.stores.sql.log import LogRole
from redrive.stores.sql.overriding import OverridingRole
from redrive.stores.sql.projections import ProjectionsRole
from redrive.stores.sql.registering import RegistryRole
from redrive.stores.sql.regrouping import RegroupingRole
from redrive.stores.sql.replays import ReplaysRole
from redrive.stores.sql.request_logs import RequestLogsRole
from redrive.stores.sql.rerouting import ReroutingRole
from redrive.stores.sql.retention import RetentionRole
from redrive.stores.sql.schedules import SchedulesRole
from redrive.stores.sql.secrets import SecretsRole
from redrive.stores.sql.services import ServicesRole
from redrive.stores.sql.taking_over import TakingOverRole
from redrive.stores.sql.tenants import TenantsRole
from redrive.stores.sql.trends import TrendsRole

__all__ = ["SharedRoles"]


class SharedRoles(
    LogRole,
    RegistryRole,
    FindingRole,
    GatesRole,
    CallingRole,
    OverridingRole,
    TenantsRole,
    FiguresRole,
    InspectionRole,
    CausesRole,
    EventsRole,
    InterventionRole,
    AuditRole,
    ReplaysRole,
    SchedulesRole,
    LettersRole,
    TakingOverRole,
    ReroutingRole,
    ErasingRole,
    LanesRole,
    ProjectionsRole,
    RetentionRole,
    RegroupingRole,
    TrendsRole,
    RequestLogsRole,
    AccessRole,
    SecretsRole,
    ServicesRole,
    EncryptingRole,
):
    """The roles that a store need not carry out in its own way."""
