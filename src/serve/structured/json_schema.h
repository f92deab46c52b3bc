// JSON Schema (draft 2020-12, what of it can be generated) → a rule of a grammar. What the rule accepts is valid against the schema;
// of what is valid it accepts compact JSON with the members of `properties` in their order, then the others.
//
// Fails closed: a keyword that is not enforced is an error that names its place, never ignored. Understood: type, enum, const,
// properties, required, additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, pattern, format (date,
// time, date-time, email, hostname, ipv4, uuid, uri), minimum, maximum, exclusiveMinimum, exclusiveMaximum, anyOf, oneOf (where its
// branches cannot overlap), allOf, $ref within the document, $defs; notes for readers (title, description, default, examples ...)
// and what begins with x- say nothing.
#pragma once

#include <string>

#include "base/result.h"
#include "serve/openai/fields.h"
#include "serve/structured/json_grammar.h"

namespace hone {

inline constexpr size_t kMaxSchemaBytes = 256 << 10;  // written without spaces

// `only_objects`: nothing else is wanted, whatever the schema lets through. Errors: kUnsupported, kInvalidInput, kLimit;
// "properties.a.pattern: ...".
Result<GrammarBuilder::Rule> AddJsonSchema(JsonGrammar& json, const Json& schema, bool only_objects = false);

}  // namespace hone
