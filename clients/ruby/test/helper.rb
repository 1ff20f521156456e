# frozen_string_literal: true

$LOAD_PATH.unshift File.expand_path("../lib", __dir__)
require "kickstand"
require "kickstand/testing"
require "minitest/autorun"

# A transport that answers from a list, and records the requests.
class FakeTransport
  Answer = Struct.new(:status, :headers, :pieces, :failure, keyword_init: true)

  attr_reader :requests

  def initialize(*answers)
    @answers = answers
    @requests = []
  end

  def call(request)
    @requests << request
    answer = @answers.shift or raise "an unexpected request: #{request.inspect}"
    raise answer if answer.is_a?(Exception)

    yield answer.status, answer.headers || {}, Pieces.new(Array(answer.pieces), answer.failure)
  end

  # The pieces of a body, which may end with an error.
  Pieces = Struct.new(:list, :failure) do
    def each(&block)
      list.each(&block)
      raise failure if failure
    end
  end
end

# Helpers of tests with a client.
module Clients
  LIVE = "sk_live_#{"k" * 32}".freeze
  TEST = "sk_test_#{"k" * 32}".freeze

  # @param headers [Hash{Symbol => String}] names with _ for -
  def json(status, body, **headers)
    headers = headers.transform_keys { |name| name.name.tr("_", "-") }
    FakeTransport::Answer.new(status:, headers: { "content-type" => "application/json", **headers }, pieces: [JSON.generate(body)])
  end

  # @return [Array] a client and its transport
  def helpdesk(*answers, key: LIVE, **options)
    transport = FakeTransport.new(*answers)
    [Kickstand::Helpdesk.new(key:, base_url: "https://kickstand.example", transport:, sleep: ->(_) {}, **options), transport]
  end

  def fleet(*answers, key: TEST, **options)
    transport = FakeTransport.new(*answers)
    [Kickstand::Fleet.new(key:, base_url: "https://kickstand.example", transport:, sleep: ->(_) {}, **options), transport]
  end
end
