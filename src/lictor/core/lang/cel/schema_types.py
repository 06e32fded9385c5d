"""Types of objects in CEL, from the forms of their kinds."""

from msgspec.structs import replace

from lictor.core.facts.schemas import Form
from lictor.core.lang.cel.library.structs import Structs
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.types import (
    BOOL,
    DYN,
    INT,
    STRING,
    CelType,
    list_type,
    map_type,
    struct_type,
)
from lictor.core.lang.cel.values import Value

# Other scalars are quantities, times and such: their types depend on the value.
_SCALARS = {"string": STRING, "boolean": BOOL, "number": INT}


class SchemaStructs(Structs):
    """Types with the fields of forms, beside those of an environment."""

    def __init__(self, base: Structs) -> None:
        self._base = base
        self._forms: dict[str, Form] = {}

    def find(self, name: str) -> CelType | None:
        return self._base.find(name)

    def find_field(self, name: str, field: str) -> CelType | None:
        form = self._forms.get(name)
        if form is None or form.map is None:
            return self._base.find_field(name, field)
        found = form.map.fields.get(field)
        return None if found is None else self.declare(f"{name}.{field}", found)

    def make(self, name: str, fields: dict[str, Value]) -> Value:
        return self._base.make(name, fields)

    def declare(self, name: str, form: Form) -> CelType:
        """The type of a form; dyn where it allows values of several types."""
        if bool(form.scalar) + (form.list is not None) + (form.map is not None) != 1:
            return DYN
        if form.list is not None:
            return list_type(self.declare(f"{name}.@idx", form.list.element))
        if form.map is None:
            return _SCALARS.get(form.scalar, DYN)
        if not form.map.fields and form.map.others is not None:
            return map_type(STRING, self.declare(f"{name}.@elem", form.map.others))
        if form.map.others is not None:
            return DYN
        self._forms[name] = form
        return struct_type(name)


def declare_objects(environment: Environment, forms: dict[str, tuple[str, Form]]) -> Environment:
    """The environment with variables whose types are forms: variable -> name of the type, form."""
    structs = SchemaStructs(environment.structs)
    types = {variable: structs.declare(*named) for variable, named in forms.items()}
    return replace(environment.extend(types), structs=structs)
