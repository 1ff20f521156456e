# frozen_string_literal: true

# The official client library of Kickstand: {Helpdesk} and {Fleet} for the two APIs, {Webhooks} for
# deliveries.
module Kickstand
end

require_relative "kickstand/version"
require_relative "kickstand/attachment"
require_relative "kickstand/codes"
require_relative "kickstand/errors"
require_relative "kickstand/client"
require_relative "kickstand/resource"
require_relative "kickstand/webhooks"
require_relative "kickstand/helpdesk"
require_relative "kickstand/fleet"
