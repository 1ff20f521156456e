# frozen_string_literal: true

require_relative "helper"

class WebhooksTest < Minitest::Test
  SECRET = "whsec_#{["k" * 32].pack("m0")}".freeze
  OLD = "an old secret of sixteen characters or more"
  BODY = '{"id":"evt-1","event":"ticket.created","created_at":"2026-11-21T09:30:00.000Z","data":{"ticket":{"id":"t-1"}}}'

  def verify(headers, body: BODY, secret: SECRET, **options) = Kickstand::Webhooks.verify(body, headers, secret:, **options)

  def test_verifies_what_it_signs
    headers = Kickstand::Testing.sign(BODY, secret: SECRET, id: "evt-1")
    event = verify(headers)
    assert_equal ["evt-1", "ticket.created", Time.utc(2026, 11, 21, 9, 30)], [event.id, event.event, event.created_at]
    assert_equal "evt-1", Kickstand::Webhooks.verify_body(BODY, headers, secret: SECRET).id
    assert_equal "evt-1", verify(headers, body: BODY.b).id
  end

  def test_signs_with_both_secrets_while_one_is_replaced
    headers = Kickstand::Testing.sign(BODY, secret: [SECRET, OLD])
    [SECRET, OLD, ["wrong", OLD]].each { |secret| assert_equal "ticket.created", verify(headers, secret:).event }
    assert_raises(Kickstand::SignatureError) { verify(headers, secret: "wrong") }
  end

  def test_reads_the_headers_of_frameworks
    headers = Kickstand::Testing.sign(BODY, secret: SECRET)
    rack = headers.transform_keys { |name| "HTTP_#{name.upcase.tr("-", "_")}" }.merge("rack.input" => nil, "CONTENT_TYPE" => "application/json")
    [rack, headers.transform_values { |value| [value] }, headers.transform_keys(&:to_sym), headers.to_a].each do |form|
      assert_equal "ticket.created", verify(form).event
    end
  end

  def test_types_the_data_of_known_events
    event = verify(Kickstand::Testing.sign(BODY, secret: SECRET))
    assert_instance_of Kickstand::EventTicketCreatedData, event.data
    case event
    in { event: "ticket.created", data: { ticket: { id: } } } then assert_equal "t-1", id
    end
  end

  def test_leaves_the_data_of_other_events
    flat = '{"event":"ticket.created","timestamp":"2026-11-21T09:30:00.000Z","data":{"ticketId":"t-1"}}'
    event = verify(Kickstand::Testing.sign(flat, secret: SECRET, id: "evt-2", form: "a"), body: flat)
    assert_equal ["evt-2", { "ticketId" => "t-1" }, Time.utc(2026, 11, 21, 9, 30)], [event.id, event.data, event.timestamp]
    unknown = BODY.sub("ticket.created", "ticket.frozen")
    assert_equal({ "ticket" => { "id" => "t-1" } }, verify(Kickstand::Testing.sign(unknown, secret: SECRET), body: unknown).data)
  end

  # The helpdesk and the fleet both have an event customer.created.
  def test_types_the_data_by_the_source
    body = '{"id":"evt_1","event":"customer.created","created_at":"2026-11-21T09:30:00.000Z","data":{"livemode":true,"customer":{"status":"active"}}}'
    headers = Kickstand::Testing.sign(body, secret: SECRET)
    { "helpdesk" => Kickstand::EventCustomerCreatedData, fleet: Kickstand::FleetEventCustomerCreatedData,
      "sandbox" => Kickstand::FleetEventCustomerCreatedData }.each do |source, record|
      assert_instance_of record, verify(headers, body:, source:).data
      assert_instance_of record, Kickstand::Webhooks.verify_body(body, headers, secret: SECRET, source:).data
    end
    assert_instance_of Kickstand::EventCustomerCreatedData, verify(headers, body:).data
    event = verify(headers, body:, source: "fleet")
    case event
    in { event: "customer.created", data: { livemode: true, customer: { status: } } } then assert_equal "active", status
    end
    assert_equal event, Marshal.load(Marshal.dump(event))
    assert_raises(ArgumentError) { verify(headers, body:, source: "Fleet") }
  end

  # Every event has the record of its source, with all members.
  def test_reads_the_vectors
    JSON.parse(File.read(File.expand_path("../../vectors/events.json", __dir__))).each do |vector|
      body = JSON.generate(vector["body"])
      event = verify(Kickstand::Testing.sign(body, secret: SECRET), body:, source: vector["source"])
      assert_equal vector["body"], event.raw
      if vector["record"].empty?
        assert_instance_of Hash, event.data, vector["name"]
        next
      end
      assert_equal vector["record"].split("_").map(&:capitalize).join, event.data.class.name.delete_prefix("Kickstand::")
      assert_includes_members vector["body"]["data"], event.data, vector["name"]
    end
  end

  # The documents have an example of each event in both forms.
  def test_reads_the_examples_of_the_document
    document = JSON.parse(File.read(File.expand_path("../../../docs/api/helpdesk.openapi.json", __dir__)))
    bodies = document["webhooks"].values.map { |item| item["post"]["requestBody"]["content"]["application/json"]["example"] }
    assert_equal Kickstand::Webhooks::DATA.keys, bodies.filter_map { |body| body["event"] if body.key?("created_at") }.sort
    bodies.each do |body|
      text = JSON.generate(body)
      event = verify(Kickstand::Testing.sign(text, secret: SECRET), body: text)
      expected = body.key?("created_at") ? Kickstand.const_get(Kickstand::Webhooks::DATA.fetch(body["event"])) : Hash
      assert_instance_of expected, event.data, body["event"]
      assert_equal body["data"], JSON.parse(event.data.to_json)
    end
  end

  def test_compares_with_the_clock
    headers = Kickstand::Testing.sign(BODY, secret: SECRET, timestamp: Time.at(1_000))
    assert_equal "evt-1", verify(headers, now: Time.at(1_300)).id
    assert_equal :timestamp, assert_raises(Kickstand::SignatureError) { verify(headers) }.reason
  end

  def test_refuses_arguments
    headers = Kickstand::Testing.sign(BODY, secret: SECRET)
    [nil, "", [], [nil], [SECRET, ""], "whsec_", "whsec_="].each do |secret|
      assert_raises(ArgumentError, secret.inspect) { verify(headers, secret:) }
    end
    assert_raises(ArgumentError) { verify(headers, body: { "id" => "evt-1" }) }
    assert_raises(ArgumentError) { Kickstand::Webhooks.verify_body(BODY, headers, secret: SECRET, form: "c") }
  end

  def test_reports_a_signed_body_that_is_no_event
    ["[]", "{}", '{"event":5}', "no json", "\xFF"].each do |body|
      error = assert_raises(Kickstand::Error) { verify(Kickstand::Testing.sign(body, secret: SECRET), body:) }
      refute_kind_of Kickstand::SignatureError, error
    end
  end

  # As the server reads them.
  def test_reads_keys
    {
      "plain" => "plain", "whsec_not base64!" => "whsec_not base64!", "whsec_abcde" => "whsec_abcde", "whsec_aGk=" => "hi", "whsec_aGk" => "hi",
      "whsec_aGl" => "hi", "whsec_+/8=" => "\xFB\xFF"
    }.each { |secret, key| assert_equal key.b, Kickstand::Signature.standard_key(secret), secret }
  end

  private

  # The record knows the members, except those that no version knows.
  def assert_includes_members(expected, actual, path)
    case expected
    when Hash
      expected.except("added_later").each do |name, value|
        assert_includes actual.class.members.keys, name.to_sym, path if actual.is_a?(Kickstand::Record)
        assert_includes_members value, actual[name], "#{path}.#{name}"
      end
    when Array
      assert_equal expected.size, actual.size, path
      expected.zip(actual) { |pair| assert_includes_members(*pair, path) }
    else
      actual.is_a?(Time) ? assert_equal(Time.iso8601(expected), actual, path) : assert_equal([expected], [actual], path)
    end
  end
end
