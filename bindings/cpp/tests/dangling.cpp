/* Each line keeps a view of what is gone: clang must warn of all of them, and so not compile this.
 */
#include <experiment.hpp>

std::string_view dangling_value(const experiment::client &client) {
    const std::string_view value = client.fetch_v2({}).value_or("flag", "off");
    return value;
}
std::optional<std::string_view> dangling_variant(const experiment::client &client) {
    const experiment::variant_view variant = client.fetch_v2({})["flag"];
    return variant.value();
}
std::string_view dangling_json(const experiment::client &client) {
    const std::string_view json = client.fetch_v2({}).json();
    return json;
}
std::string_view dangling_result(const experiment::client &client) {
    const std::string_view json = client.try_fetch_v2({})->json();
    return json;
}
