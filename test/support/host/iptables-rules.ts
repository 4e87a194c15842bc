/** Rules of two tables with a custom chain, a policy, a comment, and matches and targets that are extensions. */
export const SAMPLE_RULES = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:GUARD - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -m comment --comment "two words" -j DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -j GUARD
-A GUARD -m limit --limit 5/sec -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 80
-A POSTROUTING -o eth0 -j MASQUERADE
COMMIT
`

/** Rules as the tools print them, sorted, without times and counters. */
export function rulesOf(text: string): readonly string[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.replace(/\[\d+:\d+\]/, ''))
    .toSorted()
}
