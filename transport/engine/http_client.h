// One HTTP exchange over a connection of its own, bounded in time and size.
//
// Threads: any, at once. Redirects are not followed, and the proxies of the environment are not
// used: they lead out of the cluster, where no metadata service is.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace railhop {

struct HttpRequest {
  const char* method = "GET";
  std::string url;
  std::string body = {};  // JSON; of a GET or DELETE: none
};

struct HttpReply {
  long status = 0;
  std::string body;
};

// A reply of any status. FAILED_PRECONDITION: none within `timeout`, name look-up included.
// INVALID_ARGUMENT: not HTTP, or a body of more than `max_body` bytes. The text does not name
// the URL.
absl::StatusOr<HttpReply> ExchangeHttp(const HttpRequest& request,
                                       std::chrono::milliseconds timeout, size_t max_body);

// For a query: all but letters, digits and -._~ as %XX.
std::string UrlEncode(const std::string& text);

// The beginning of a reply's body, for an error's text: one line, printable.
std::string ShowBody(const std::string& body);

}  // namespace railhop
