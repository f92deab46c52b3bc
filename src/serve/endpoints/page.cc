// GET /: the chat page. It may run its own script and call this server, nothing else.
#include "serve/page.h"

#include <utility>

#include "serve/endpoint.h"

namespace hone {

void PageEndpoint(ServeContext&, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = kPageHtml;
  response.headers = {{"Content-Security-Policy",
                       "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src 'self' data:; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Cache-Control", "no-cache"}};
  writer->Send(std::move(response));
}

}  // namespace hone
