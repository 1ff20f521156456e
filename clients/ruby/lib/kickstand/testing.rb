# frozen_string_literal: true

require "securerandom"
require_relative "../kickstand"

module Kickstand
  # Helpers for the tests of your receiver. Load them with <tt>require "kickstand/testing"</tt>.
  module Testing
    module_function

    # Signs a delivery as the server does.
    #
    #   body = JSON.generate(id: "evt-1", event: "ticket.created", created_at: Time.now.utc.iso8601, data: {})
    #   post "/hook", params: body, headers: Kickstand::Testing.sign(body, secret: "whsec_…")
    #
    # @param body [String]
    # @param secret [String, Array<String>] the current one, and while it is replaced the old one
    # @param id [String] of the event
    # @param timestamp [Time]
    # @param form [String] "a" or "b"
    # @return [Hash{String => String}] the headers of the delivery
    def sign(body, secret:, id: SecureRandom.uuid, timestamp: Time.now, form: "b")
      seconds = timestamp.to_i.to_s
      signatures = Signature.keys(secret) { |text| Signature.standard(Signature.standard_key(text), id, seconds, body) }
      {
        "Content-Type" => "application/json",
        "Webhook-Id" => id,
        "Webhook-Timestamp" => seconds,
        "Webhook-Signature" => signatures.join(" "),
        "X-Service-Signature" => Signature.own(Array(secret).first.b, body, form)
      }
    end
  end
end
