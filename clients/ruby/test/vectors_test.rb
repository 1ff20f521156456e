# frozen_string_literal: true

require_relative "helper"
require_relative "operations"
require "uri"

# The vectors that all client libraries pass.
module Vectors
  FOLDER = File.expand_path("../../vectors", __dir__)

  def self.load(name) = JSON.parse(File.read(File.join(FOLDER, name)))

  # @return [String] the key of a vector
  def self.key(key) = key.is_a?(Hash) ? key["text"] : "sk_#{key}_#{"k" * 32}"

  # @return [Object] an argument of a vector as a value of Ruby
  def self.argument(value)
    case value
    when Array then value.map { |item| argument(item) }
    when Hash
      special(value) || value.to_h { |name, item| [name.to_sym, argument(item)] }
    else value
    end
  end

  def self.special(value)
    return Time.iso8601(value["$time"]) if value.key?("$time")

    file = value["$attachment"]
    file && Kickstand::Attachment.new(file["base64"].unpack1("m0"), name: file["name"], content_type: file["content_type"])
  end

  # @return [Object] a result as JSON has it
  def self.plain(value)
    case value
    when Kickstand::Record, Kickstand::Page, Kickstand::ImportResult then plain(value.to_h)
    when Kickstand::Problem then plain(value.raw)
    when Hash then value.to_h { |name, item| [name.to_s, plain(item)] }
    when Array then value.map { |item| plain(item) }
    when Time then value.getutc.iso8601(3)
    when Date then value.iso8601
    else value
    end
  end
end

# Plays one vector of exchanges.json: it is the transport, and compares the requests.
class Exchange
  FAILURES = {
    "connect" => Kickstand::ConnectionError, "reset" => Kickstand::ConnectionError,
    "timeout" => Kickstand::TimeoutError, "cut" => Kickstand::ConnectionError
  }.freeze

  attr_reader :waits, :yielded, :observed

  def initialize(test, vector)
    @test = test
    @vector = vector
    @call = vector["call"]
    @requests = []
    @waits = []
    @yielded = []
  end

  def run
    options = (@vector["options"] || {}).transform_keys(&:to_sym)
    client = Kickstand.const_get(@vector["client"].capitalize).new(
      key: Vectors.key(@vector["key"]), base_url: "https://kickstand.example", transport: self, sleep: @waits.method(:push),
      random: -> { @vector["random"] }, clock: -> { Time.at(@vector["now"] || 0) }, **options
    )
    group, method = OPERATIONS.fetch(@vector["client"]).fetch(@call["operation"])
    mode(client.public_send(group), method)
  end

  def remaining = (@vector["exchanges"] || []).drop(@requests.size)

  # The transport.
  def call(request)
    exchange = @vector["exchanges"][@requests.size] or raise Minitest::Assertion, "an unexpected request: #{request.inspect}"
    compare(request, exchange["request"])
    @requests << request
    failure = FAILURES[exchange["failure"]]
    raise failure, exchange["failure"] if failure && exchange["failure"] != "cut"

    answer = exchange["response"]
    pieces = FakeTransport::Pieces.new(bytes(answer).scan(/.{1,7}/mn), failure&.new("cut"))
    yield answer["status"], answer["headers"] || {}, pieces
  end

  private

  def bytes(answer)
    return answer["base64"].unpack1("m0") if answer["base64"]

    (answer["text"] || (answer.key?("body") ? JSON.generate(answer["body"]) : "")).b
  end

  def compare(request, expected)
    headers = request.headers.transform_keys(&:downcase)
    @test.assert_equal expected["method"], request.method_name
    @test.assert_equal ["kickstand.example", expected["path"]], [request.uri.host, request.uri.path]
    @test.assert_equal expected["query"] || {}, query(request.uri)
    @test.assert_equal "Bearer #{Vectors.key(@vector["key"])}", headers["authorization"]
    @test.assert_match(%r{\Akickstand-ruby/}, headers["user-agent"])
    compare_headers(headers, expected)
    compare_key(headers["idempotency-key"])
    compare_body(request.body, expected)
  end

  def query(uri)
    URI.decode_www_form(uri.query || "").group_by(&:first).to_h do |name, pairs|
      values = pairs.map(&:last)
      [name, values.size == 1 && !name.end_with?("[]") ? values.first : values]
    end
  end

  def compare_headers(headers, expected)
    (expected["headers"] || {}).each { |name, value| @test.assert_equal value, headers[name] }
    (expected["present"] || []).each { |name| @test.assert headers.key?(name), "#{name} is missing" }
    (expected["absent"] || []).each { |name| @test.refute headers.key?(name), "#{name} is there" }
    earlier = @requests.map { |request| request.headers.transform_keys(&:downcase) }
    (expected["same"] || []).each { |name| @test.assert_equal earlier.first[name], headers[name] unless earlier.empty? }
    (expected["differs"] || []).each { |name| @test.refute_includes earlier.filter_map { |other| other[name] }, headers[name] }
  end

  def compare_key(value)
    return @test.assert_nil(value) if @requests.empty? && @vector["exchanges"].first["request"]["method"] == "GET"

    own = @call.dig("options", "idempotency_key")
    return if value.nil?

    own ? @test.assert_equal(own, value) : @test.assert_match(/\A\h{8}-\h{4}-4\h{3}-[89ab]\h{3}-\h{12}\z/, value)
  end

  def compare_body(body, expected)
    if expected["lines"]
      @test.assert_equal(expected["lines"], body.lines.map { |line| JSON.parse(line) })
    elsif expected.key?("body")
      @test.assert_equal expected["body"], JSON.parse(body)
    else
      @test.assert_nil body
    end
  end

  def mode(group, method)
    options = (@call["options"] || {}).compact.transform_keys(&:to_sym)
    options[:on_response] = ->(response) { @observed = response } if @vector["observed"]
    path = group.method(method).parameters.filter_map { |kind, name| name.name if kind == :req }.map { |name| @call["path"].fetch(name) }
    arguments = Vectors.argument({ **(@call["query"] || {}), **(@call["body"] || {}) })
    send("run_#{@call["mode"]}", group, method, path, { **arguments, request_options: options })
  end

  def run_call(group, method, path, arguments) = group.public_send(method, *path, **arguments)

  def run_iterate(group, method, path, arguments)
    run_call(group, method, path, arguments).each { |record| @yielded << record }
    @yielded
  end

  def run_pages(group, method, path, arguments) = run_call(group, method, path, arguments).each_page.map(&:data)

  def run_export(group, _method, path, arguments)
    group.export(*path, **arguments).each { |record| @yielded << record }
    @yielded
  end

  def run_export_csv(group, _method, path, arguments) = group.export_csv(*path, **arguments).read.force_encoding(Encoding::UTF_8)

  def run_import(group, _method, _path, arguments)
    group.import(@call["records"], **arguments) { |line| @yielded << line }
  end

  def run_file(group, method, path, arguments) = { "base64" => [run_call(group, method, path, arguments).read].pack("m0") }

  def run_modify(group, _method, path, arguments)
    group.modify(*path, **arguments) do |record|
      @call["append"].to_h { |name, value| [name.to_sym, record[name] + [value]] }
    end
  end
end

class ExchangesTest < Minitest::Test
  Vectors.load("exchanges.json").each do |vector|
    define_method("test_#{vector["name"]}") { play(vector) }
  end

  private

  def play(vector)
    exchange = Exchange.new(self, vector)
    outcome = begin
      exchange.run
    rescue Kickstand::Error, ArgumentError => e
      e
    end
    vector.key?("error") ? compare_error(vector["error"], outcome) : compare_result(vector, outcome)
    assert_subset vector["yielded"], Vectors.plain(exchange.yielded) if vector.key?("yielded")
    compare_observed(vector["observed"], exchange.observed) if vector.key?("observed")
    assert_empty exchange.remaining
    assert_equal (vector["waits"] || []).size, exchange.waits.size
    exchange.waits.zip(vector["waits"]) { |got, want| assert_in_delta want, got, 0.001 }
  end

  def compare_result(vector, outcome)
    raise outcome if outcome.is_a?(Exception)

    assert_subset vector["result"], Vectors.plain(outcome)
    assert_subset vector["raw"], outcome.raw if vector.key?("raw")
  end

  def compare_error(expected, error)
    case expected["kind"]
    when "argument" then assert_kind_of ArgumentError, error
    when "timeout" then assert_kind_of Kickstand::TimeoutError, error
    when "connection" then assert_instance_of Kickstand::ConnectionError, error
    when "answer" then assert_instance_of Kickstand::Error, error
    when "problem"
      assert_kind_of Kickstand::Problem, error
      (expected.keys - ["kind"]).each { |name| assert_subset expected[name], Vectors.plain(error.public_send(name)) }
    else flunk "the kind #{expected["kind"]} is unknown"
    end
  end

  def compare_observed(expected, response)
    expected.each do |name, value|
      got = name == "replayed" ? response.replayed? : response.public_send(name)
      got = { **got.to_h, reset: got.reset.to_i } if name == "rate_limit"
      assert_subset value, Vectors.plain(got)
    end
  end

  # Objects may have further members.
  def assert_subset(expected, got)
    case expected
    when Hash
      assert_kind_of Hash, got
      expected.each do |name, value|
        assert got.key?(name), "#{name} is missing"
        assert_subset value, got[name]
      end
    when Array
      assert_kind_of Array, got
      assert_equal expected.size, got.size
      expected.zip(got) { |want, item| assert_subset want, item }
    when nil then assert_nil got
    else assert_equal expected, got
    end
  end
end

class ConfigurationsTest < Minitest::Test
  Vectors.load("configurations.json").each do |vector|
    define_method("test_#{vector["name"]}") do
      options = { key: Vectors.key(vector["key"]), base_url: vector["base_url"], **(vector["options"] || {}).transform_keys(&:to_sym) }
      if vector["error"]
        error = assert_raises(ArgumentError) { Kickstand::Helpdesk.new(**options) }
        refute_includes error.message, options[:key] unless options[:key].empty?
        assert_raises(ArgumentError) { Kickstand::Fleet.new(**options) }
      else
        assert_equal vector["result"], "helpdesk" => Kickstand::Helpdesk.new(**options).url, "fleet" => Kickstand::Fleet.new(**options).url
      end
    end
  end
end

class SignaturesTest < Minitest::Test
  Vectors.load("signatures.json").each do |vector|
    define_method("test_#{vector["name"]}") do
      secret = vector["secrets"].map { |item| item["text"] || "whsec_#{[item["whsec_base64_of"]].pack("m0")}" }
      if vector["error"]
        error = assert_raises(Kickstand::SignatureError) { verify(vector, secret) }
        assert_equal vector["error"].to_sym, error.reason
      else
        assert_subset vector["result"], verify(vector, secret)
      end
    end
  end

  private

  def verify(vector, secret)
    return Kickstand::Webhooks.verify_body(vector["body"], vector["headers"], secret:, form: vector["form"]) if vector["form"]

    Kickstand::Webhooks.verify(vector["body"], vector["headers"], secret:, tolerance: vector["tolerance"], now: Time.at(vector["now"]))
  end

  def assert_subset(expected, event)
    assert_equal expected, event.raw.slice(*expected.keys)
    assert_equal expected["event"], event.event
  end
end
