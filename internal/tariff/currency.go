package tariff

import "strings"

// Currencies of ISO 4217 that are in circulation, by the digits of their minor unit
// (fleet-api.md 8). CLDR has other digits for some.
const (
	currencies0 = " BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF "
	currencies2 = " AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD" +
		" CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD" +
		" HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN" +
		" NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL" +
		" THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG YER ZAR ZMW ZWG "
	currencies3 = " BHD IQD JOD KWD LYD OMR TND "
	currencies4 = " CLF UYW "
)

// MinorDigits returns the number of digits of a currency's minor unit (2: an amount
// of 100 is 1 EUR), and false for an unknown currency.
func MinorDigits(currency string) (int, bool) {
	for digits, list := range [...]string{currencies0, "", currencies2, currencies3, currencies4} {
		if len(currency) == 3 && strings.Contains(list, " "+currency+" ") {
			return digits, true
		}
	}
	return 0, false
}
