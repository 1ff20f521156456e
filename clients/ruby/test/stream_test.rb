# frozen_string_literal: true

require_relative "helper"
require "stringio"

class StreamTest < Minitest::Test
  include Clients

  def stream(*pieces, failure: nil) = FakeTransport::Answer.new(status: 200, pieces:, failure:)

  def test_splits_lines_anywhere
    text = "{\"id\":\"ä\"}\r\n{\"id\":\"b\"}\n\n"
    (1..text.bytesize).each do |size|
      client, = helpdesk(stream(*text.b.scan(/.{1,#{size}}/mn)))
      assert_equal %w[ä b], client.tickets.export.map(&:id)
    end
  end

  def test_refuses_lines_that_are_no_objects
    ["5\n", "{\"id\":\n", "{\"id\":\"\xFF\"}\n", "null\n"].each do |line|
      client, = helpdesk(stream("{\"id\":\"a\"}\n", line))
      ids = []
      assert_raises(Kickstand::ConnectionError, line) { client.tickets.export.each { |ticket| ids << ticket.id } }
      assert_equal ["a"], ids
    end
  end

  def test_limits_the_length_of_a_line
    client, = helpdesk(stream(*Array.new(65, "x" * (1 << 20))))
    assert_match(/64 MiB/, assert_raises(Kickstand::Error) { client.tickets.export.first }.message)
  end

  def test_repeats_until_the_first_record
    broken = stream("{\"id\":", failure: Kickstand::ConnectionError.new("reset"))
    client, transport = helpdesk(broken, stream("{\"id\":\"a\"}\n", failure: Kickstand::ConnectionError.new("reset")))
    assert_raises(Kickstand::ConnectionError) { client.tickets.export.to_a }
    assert_equal 2, transport.requests.size
  end

  def test_does_not_repeat_for_errors_of_the_block
    client, transport = helpdesk(stream("{\"id\":\"a\"}\n"))
    assert_raises(Kickstand::TimeoutError) { client.tickets.export.each { raise Kickstand::TimeoutError, "of another call" } }
    assert_equal 1, transport.requests.size
  end

  def test_each_enumeration_sends_a_request
    client, transport = helpdesk(stream("{\"id\":\"a\"}\n"), stream("{\"id\":\"b\"}\n"))
    export = client.tickets.export(status: "open")
    assert_empty transport.requests
    assert_equal([["a"], ["b"]], Array.new(2) { export.map(&:id) })
  end

  def test_refuses_a_condition
    client, transport = helpdesk
    request_options = { if_none_match: '"v1"' }
    assert_raises(ArgumentError) { client.tickets.export(request_options:).first }
    assert_raises(ArgumentError) { client.messages.get_attachment("a", request_options:).read }
    assert_empty transport.requests
  end

  def test_copies_bytes
    client, = helpdesk(stream("\xFF".b, "\x00\n".b))
    io = StringIO.new(String.new)
    assert_equal 3, client.messages.get_attachment("a").copy_to(io)
    assert_equal "\xFF\x00\n".b, io.string
  end

  def test_imports_texts
    client, transport = fleet(stream("{\"line\":1,\"status\":422,\"problem\":{\"status\":422,\"code\":\"validation_failed\",\"detail\":\"No.\"}}\n",
                                     "{\"summary\":{\"created\":0,\"failed\":1}}\n"))
    result = client.vehicles.import_csv("code\r\nB-1\r\n", atomic: true)
    assert_equal ["No. (validation_failed)", 1], [result.problems.first.problem.message, result.summary.failed]
    request = transport.requests.first
    assert_equal ["text/csv", "atomic=true", "code\r\nB-1\r\n"], [request.headers["Content-Type"], request.uri.query, request.body]
  end

  def test_imports_any_enumeration_of_records
    client, transport = fleet(stream("{\"summary\":{\"created\":2,\"failed\":0}}\n"))
    records = Enumerator.new do |list|
      list << { code: "B-1", location: nil }
      list << Kickstand::Vehicle.new("code" => "B-2")
    end
    client.vehicles.import(records)
    assert_equal "{\"code\":\"B-1\",\"location\":null}\n{\"code\":\"B-2\"}\n", transport.requests.first.body
  end
end
