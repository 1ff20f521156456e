# frozen_string_literal: true

require "openssl"
require_relative "errors"
require_relative "wire"

module Kickstand
  # Verifies the deliveries of webhooks.
  module Webhooks
    # The accepted difference of a delivery's timestamp and the clock, in seconds.
    TOLERANCE = 300

    # An event of a verified delivery of a webhook with the source "helpdesk".
    #
    #   case event
    #   in {event: "ticket.created", data: {ticket: {id:, subject:}}} then notify(id, subject)
    #   else nil
    #   end
    class Event < Record
      # @return [String, nil] the same for all deliveries of the event: ignore one that you have seen. Nil
      #   for form A by {Webhooks.verify_body} without the header Webhook-Id
      member :id
      # @return [String] for example "ticket.created"
      member :event
      # @return [Time, nil] of form B
      member :created_at, Type::TIME
      # @return [Time, nil] of form A
      member :timestamp, Type::TIME
      # @return [Record, Hash{String => Object}] of form B, the record of the event's name; of form A, or
      #   of an event that this version does not know, a Hash
      member :data

      private

      def member_value(name)
        data = known[raw["event"]]
        return super unless name == :data && data && raw.key?("created_at")

        Type.record(data).call(raw["data"])
      end

      def known = DATA
    end

    # An event of a verified delivery of a webhook with the source "fleet" or "sandbox".
    #
    #   case event
    #   in {event: "ride.completed", data: {livemode: true, ride: {id:, price: {total_amount:}}}} then bill(id, total_amount)
    #   else nil
    #   end
    class FleetEvent < Event
      @members = Event.members

      private

      def known = FLEET_DATA
    end

    module_function

    # Verifies a delivery by the headers of Standard Webhooks, for both payload forms.
    #
    # @param body [String] the bytes of the request, before any parsing
    # @param headers [#each] names and values: a Hash, the headers of Rails, or the environment of Rack
    # @param secret [String, Array<String>] of the webhook; several while it is replaced
    # @param tolerance [Numeric] the accepted difference of the timestamp and +now+ in seconds
    # @param now [Time]
    # @param source [String, Symbol] "helpdesk", "fleet" or "sandbox", the source of the webhook. It decides which
    #   records the data have: the helpdesk and the fleet both have an event customer.created
    # @return [Event] a {FleetEvent} of the fleet
    # @raise [SignatureError] if the delivery is not authentic or too old
    def verify(body, headers, secret:, tolerance: TOLERANCE, now: Time.now, source: "helpdesk")
      of = event_class(source)
      keys = Signature.keys(secret) { |text| Signature.standard_key(text) }
      id, timestamp, signatures = %w[webhook-id webhook-timestamp webhook-signature].map { |name| Signature.header(headers, name) }
      expected = keys.map { |key| Signature.standard(key, id, timestamp, body) }
      raise SignatureError.new("the signature does not match the body and the secret", :signature) unless
        Signature.match?(expected, signatures.split) && timestamp.match?(/\A\d{1,15}\z/)
      raise SignatureError.new("the timestamp is more than #{tolerance} seconds off", :timestamp) if
        (now.to_i - timestamp.to_i).abs > tolerance

      event(body, id, of)
    end

    # Verifies a delivery by the header X-Service-Signature. It contains no time, so a recorded delivery
    # can be sent again: prefer {verify}.
    #
    # @param body [String] the bytes of the request, before any parsing
    # @param headers [#each] names and values, as of {verify}
    # @param secret [String, Array<String>] of the webhook
    # @param form [String] "a" or "b", the payload form of the webhook
    # @param source [String, Symbol] of the webhook, as of {verify}
    # @return [Event] a {FleetEvent} of the fleet
    # @raise [SignatureError] if the delivery is not authentic
    def verify_body(body, headers, secret:, form: "b", source: "helpdesk")
      of = event_class(source)
      keys = Signature.keys(secret, &:b)
      got = Signature.header(headers, "x-service-signature")
      expected = keys.map { |key| Signature.own(key, body, form) }
      raise SignatureError.new("the signature does not match the body and the secret", :signature) unless Signature.match?(expected, [got])

      event(body, Signature.header(headers, "webhook-id", required: false), of)
    end

    # @api private
    def event_class(source)
      case source.to_s
      when "helpdesk" then Event
      when "fleet", "sandbox" then FleetEvent
      else raise ArgumentError, 'source must be "helpdesk", "fleet" or "sandbox"'
      end
    end

    # @api private
    def event(body, id, of = Event)
      raw = Wire.parse(body)
      raise Error, "the delivery is signed, but is not an event" unless raw.is_a?(Hash) && raw["event"].is_a?(String)

      of.new(raw.key?("id") || id.nil? ? raw : { "id" => id, **raw })
    rescue JSON::ParserError
      raise Error, "the body of the delivery is not JSON"
    end
  end

  # Computes signatures of deliveries.
  # @api private
  module Signature
    PREFIX = "whsec_"
    private_constant :PREFIX

    module_function

    # @param secret [String, Array<String>]
    # @return [Array<String>] the key of each secret
    def keys(secret, &block)
      secrets = Array(secret)
      raise ArgumentError, "pass the secret of the webhook" if secrets.empty? || !secrets.all? { |text| text.is_a?(String) && text != "" }

      secrets.map(&block)
    end

    # @return [String] the bytes after whsec_, else those of the whole secret
    # @raise [ArgumentError] if there is nothing after whsec_
    def standard_key(secret)
      return secret.b unless secret.start_with?(PREFIX)

      encoded = secret.delete_prefix(PREFIX).sub(/=+\z/, "")
      raise ArgumentError, "the secret has no key after #{PREFIX}" if encoded.empty?
      return secret.b unless encoded.match?(%r{\A[A-Za-z0-9+/]+\z}) && encoded.length % 4 != 1

      encoded.unpack1("m") # as the server: the last character may have bits that do not count
    end

    # @return [String] a signature of Standard Webhooks
    def standard(key, id, timestamp, body)
      mac = OpenSSL::HMAC.digest("SHA256", key, "#{id}.#{timestamp}.".b << bytes(body))
      "v1,#{[mac].pack("m0")}"
    end

    # @return [String] the signature of a payload form
    def own(key, body, form)
      raise ArgumentError, 'form must be "a" or "b"' unless %w[a b].include?(form)

      mac = OpenSSL::HMAC.hexdigest("SHA256", key, bytes(body))
      form == "b" ? "sha256=#{mac}" : mac
    end

    # Compares in constant time.
    def match?(expected, got) = expected.product(got).map { |pair| OpenSSL.secure_compare(*pair) }.any?

    # @return [String, nil]
    def header(headers, name, required: true)
      headers.each do |key, value|
        text = key.to_s
        text = text.delete_prefix("HTTP_").tr("_", "-") if text.start_with?("HTTP_") # of Rack
        return Array(value).join(" ") if text.casecmp?(name) && value != ""
      end
      raise SignatureError.new("the header #{name} is missing", :unsigned) if required
    end

    def bytes(body)
      raise ArgumentError, "the body must be the bytes of the request as a String, not #{body.class}" unless body.is_a?(String)

      body.b
    end
  end
end
