// The chat page, assets/page/index.html, embedded when the build is configured.
#pragma once

#include <string_view>

namespace hone {

extern const std::string_view kPageHtml;

}  // namespace hone
