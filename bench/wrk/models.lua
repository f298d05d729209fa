-- Asks for the list of models: a request without a body, which the router
-- answers itself.
--
--   wrk -t1 -c64 -d3s --latency -s models.lua http://127.0.0.1:8080

wrk.method = "GET"
wrk.path = "/v1/models"
wrk.headers["Accept"] = "application/json"
