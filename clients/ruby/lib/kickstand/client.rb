# frozen_string_literal: true

require "uri"
require_relative "http"

module Kickstand
  # The common part of {Helpdesk} and {Fleet}. A client can be used by many threads at once.
  class Client
    # @return [String] the address before the paths of the operations
    attr_reader :url

    # @param key [String] an API key
    # @param base_url [String] the server's origin, for example "https://kickstand.example"
    # @param timeout [Numeric] the seconds of one attempt
    # @param max_retries [Integer] further attempts after no answer or a passing error
    # @param max_retry_wait [Numeric] the longest Retry-After in seconds that is waited for
    # @param allow_http [Boolean] whether the key may travel over http beyond this machine
    # @param transport [Transport, #call] sends requests
    # @param sleep [#call] waits for seconds; tests replace it
    # @param random [#call] returns a number from 0 up to 1; tests replace it
    # @param clock [#call] returns the Time; tests replace it
    # @raise [ArgumentError] if the key or the address cannot be used
    def initialize(key: ENV.fetch("KICKSTAND_KEY", nil), base_url: ENV.fetch("KICKSTAND_URL", nil),
                   timeout: 30, max_retries: 3, max_retry_wait: 60, allow_http: false, transport: Transport.new,
                   sleep: Kernel.method(:sleep), random: Random.method(:rand), clock: Time.method(:now))
      check_key(key)
      @url = "#{origin(base_url, allow_http)}#{path(key)}"
      @http = HTTP.new(@url, key.dup.freeze, timeout:, max_retries:, max_retry_wait:, transport:, sleep:, random:, clock:)
    end

    # Closes idle connections. The client can be used again.
    # @return [void]
    def close = @http.close

    # @return [String] without the key
    def inspect = "#<#{self.class} #{url}>"

    private

    def check_key(key)
      raise ArgumentError, "pass an API key as key, or set KICKSTAND_KEY" if key.nil? || key == ""
      return if key.is_a?(String) && key.ascii_only? && key.match?(/\A[\x21-\x7E]+\z/)

      raise ArgumentError, "the API key must be a String of visible ASCII characters"
    end

    # No message contains the address: it may contain a password.
    def origin(base_url, allow_http)
      raise ArgumentError, "pass the server's origin as base_url, or set KICKSTAND_URL" if base_url.nil? || base_url == ""

      uri = URI.parse(base_url)
      raise ArgumentError, "base_url must be an origin, such as https://kickstand.example" unless origin?(uri)
      raise ArgumentError, "base_url must be https, or allow_http true: http shows the API key" unless allow_http || private?(uri)

      "#{uri.scheme}://#{uri.host}#{":#{uri.port}" unless uri.port == uri.default_port}"
    rescue URI::Error
      raise ArgumentError, "base_url is not a URL"
    end

    def origin?(uri)
      uri.is_a?(URI::HTTP) && !uri.host.to_s.empty? && ["", "/"].include?(uri.path) && [uri.query, uri.fragment, uri.userinfo].none?
    end

    def private?(uri)
      uri.scheme == "https" || ["localhost", "[::1]"].include?(uri.host) || uri.host.match?(/\A127\.\d+\.\d+\.\d+\z/)
    end
  end
end
