# frozen_string_literal: true

require_relative "helper"
require "yaml"

class ClientTest < Minitest::Test
  include Clients

  def test_reads_the_environment
    before = ENV.to_h.slice("KICKSTAND_KEY", "KICKSTAND_URL")
    ENV["KICKSTAND_KEY"] = LIVE
    ENV["KICKSTAND_URL"] = "https://kickstand.example/"
    assert_equal "https://kickstand.example/api/v1", Kickstand::Helpdesk.new.url
    ENV.delete("KICKSTAND_KEY")
    assert_match(/KICKSTAND_KEY/, assert_raises(ArgumentError) { Kickstand::Helpdesk.new }.message)
  ensure
    %w[KICKSTAND_KEY KICKSTAND_URL].each { |name| ENV[name] = before[name] }
  end

  def test_refuses_options
    {
      { timeout: 0 } => /timeout/, { timeout: "5" } => /timeout/, { max_retries: -1 } => /max_retries/, { max_retries: 1.5 } => /max_retries/,
      { max_retry_wait: -1 } => /max_retry_wait/, { key: "\xFF" } => /key/, { key: :symbol } => /key/, { keys: "x" } => /keys/
    }.each do |options, message|
      arguments = { key: LIVE, base_url: "https://kickstand.example", **options }
      assert_match message, assert_raises(ArgumentError, options.inspect) { Kickstand::Helpdesk.new(**arguments) }.message
    end
  end

  def test_shows_no_key
    client, transport = helpdesk(json(200, { data: [], has_more: false, next_cursor: nil }), json(401, { code: "invalid_api_key", detail: "No." }))
    shown = [client, client.tickets, client.tickets.list, client.tickets.export, client.tickets.export_csv, transport.requests.first]
    shown.each do |object|
      refute_includes object.inspect, LIVE
      refute_includes object.pretty_inspect, LIVE
    end
    refute_includes client.to_json, LIVE
    refute_includes assert_raises(Kickstand::Problem) { client.tickets.get("x") }.full_message, LIVE
    refute_includes assert_raises(NoMethodError) { client.unknown }.message, LIVE
  end

  def test_cannot_be_dumped
    client, = helpdesk
    [client, client.tickets].each do |object|
      assert_raises(TypeError) { Marshal.dump(object) }
      refute_includes YAML.dump(object), LIVE
    end
  end

  def test_refuses_request_options
    client, transport = helpdesk
    {
      { idempotency_key: "a\r\nX-Other: b" } => /idempotency_key/, { if_match: "ä" } => /if_match/, { subaccount: 5 } => /subaccount/,
      { request_id: "" } => /request_id/, { timeout: -1 } => /timeout/, { retries: 1 } => /retries/
    }.each do |request_options, message|
      error = assert_raises(ArgumentError, request_options.inspect) { client.tickets.get("x", request_options:) }
      assert_match message, error.message
    end
    assert_empty transport.requests
  end

  def test_refuses_unknown_arguments
    client, transport = helpdesk
    assert_match(/subjct/, assert_raises(ArgumentError) { client.tickets.create(subject: "x", subjct: "y") }.message)
    assert_match(/subject/, assert_raises(ArgumentError) { client.tickets.create }.message)
    assert_match(/state/, assert_raises(ArgumentError) { client.tickets.list(state: "open") }.message)
    assert_match(/state/, assert_raises(ArgumentError) { client.tickets.export(state: "open") }.message)
    assert_empty transport.requests
  end

  def test_limits_the_size_of_an_answer
    megabyte = " " * (1 << 20)
    huge = FakeTransport::Answer.new(status: 200, pieces: Array.new(65, megabyte))
    client, = helpdesk(huge)
    assert_match(/64 MiB/, assert_raises(Kickstand::Error) { client.tickets.get("x") }.message)
  end

  def test_observes_the_last_attempt
    client, = helpdesk(json(503, { code: "unavailable", detail: "Later." }), json(404, { code: "not_found", detail: "None." }))
    seen = []
    assert_raises(Kickstand::Problem) { client.tickets.get("x", request_options: { on_response: ->(response) { seen << response.status } }) }
    assert_equal [404], seen
  end

  def test_options_can_be_reused
    options = Kickstand::RequestOptions.new(timeout: 5, request_id: "trial-1")
    client, transport = helpdesk(json(200, { id: "t" }), json(200, { id: "t" }))
    2.times { client.tickets.get("t", request_options: options) }
    assert_equal([[5, "trial-1"]] * 2, transport.requests.map { |request| [request.timeout, request.headers["X-Request-Id"]] })
    assert_equal 7, options.with(timeout: 7).timeout
  end

  def test_modify_reports_other_problems_at_once
    client, transport = helpdesk(json(200, { id: "t" }, etag: '"v1"'), json(404, { code: "not_found", detail: "None." }))
    assert_equal "not_found", assert_raises(Kickstand::Problem) { client.tickets.modify("t") { { subject: "x" } } }.code
    assert_equal 2, transport.requests.size
    assert_raises(ArgumentError) { client.tickets.modify("t", request_options: { idempotency_key: "k" }) { {} } }
  end

  def test_modify_needs_an_etag
    client, transport = helpdesk(json(200, { id: "t" }))
    assert_match(/ETag/, assert_raises(Kickstand::Error) { client.tickets.modify("t") { { subject: "x" } } }.message)
    assert_equal 1, transport.requests.size
  end

  def test_modify_raises_a_problem_of_its_block
    client, transport = helpdesk(json(200, { id: "t" }, etag: '"v1"'))
    problem = Kickstand::Problem.new({ "code" => "precondition_failed" }, status: 412)
    assert_same problem, assert_raises(Kickstand::Problem) { client.tickets.modify("t") { raise problem } }
    assert_equal 1, transport.requests.size
  end

  def test_modify_without_changes_writes_nothing
    client, transport = helpdesk(json(200, { id: "t", subject: "a" }, etag: '"v1"'))
    assert_equal "a", client.tickets.modify("t") { nil }.subject
    assert_equal 1, transport.requests.size
  end

  def test_settings_are_modified_without_an_id
    client, transport = fleet(json(200, { name: "a" }, etag: '"v1"'), json(200, { name: "b" }))
    assert_equal("b", client.settings.modify { |settings| { name: settings.name.succ } }.name)
    assert_equal ['"v1"', '{"name":"b"}'], [transport.requests.last.headers["If-Match"], transport.requests.last.body]
  end
end
