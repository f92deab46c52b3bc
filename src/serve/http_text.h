// Small parts of HTTP that are pure functions of text: targets, percent-encoding, request ids.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// "/a%20b?c=d" or "http://host/a%20b?c=d": path "/a b", query "c=d". A bad escape stays as it is.
void SplitTarget(std::string_view target, std::string* path, std::string* query);
// The client's id if it is 1 to kMaxRequestIdBytes letters, digits and -_.:/+=, otherwise a new one.
std::string RequestIdOf(std::string_view sent);
// `prefix` and 24 random hexadecimal digits.
std::string RandomId(std::string_view prefix);

}  // namespace hone
