import { spawnSync } from 'node:child_process'
import { constants } from 'node:os'

/** One try each of what a process may not do to another's: a word and what it is done to. */
export type Attempt = readonly [
  'read' | 'write' | 'list' | 'connect' | 'create' | 'trace' | 'signal' | 'follow' | 'tap',
  string,
]

/** Perl is on every Debian, and all users may run it. */
const PROGRAM = String.raw`
use IO::Socket::UNIX;
my %do = (
  read => sub { open(my $f, '<', $_[0]) && defined(sysread($f, my $b, 1)) },
  write => sub { open(my $f, '+<', $_[0]) },
  list => sub { opendir(my $d, $_[0]) },
  connect => sub { IO::Socket::UNIX->new(Peer => $_[0]) },
  create => sub { open(my $f, '>', $_[0]) },
  trace => sub { syscall(101, 16, int($_[0]), 0, 0) == 0 },
  signal => sub { kill(0, int($_[0])) },
  follow => sub { defined readlink($_[0]) },
  tap => sub { my $r = pack('a16 S x22', $_[0], 0x1002); syscall(16, 3, 0x400454ca, $r) == 0 },
);
while (<STDIN>) { chomp; my ($what, $on) = split(/\t/, $_, 2); $! = 0; print $do{$what}->($on) ? 0 : 0+$!, "\n"; }
`

/** Makes the attempts as a user, and returns those that have succeeded, and the errors of the others. */
export function attemptAs(
  uid: number,
  attempts: readonly Attempt[],
  descriptor: number | 'ignore' = 'ignore',
): { readonly done: readonly Attempt[]; readonly errors: ReadonlySet<string> } {
  const user = ['--reuid', `${uid}`, '--regid', `${uid}`, '--clear-groups', '--inh-caps=-all']
  const { stdout, stderr, status } = spawnSync('setpriv', [...user, 'perl', '-e', PROGRAM], {
    input: attempts.map((attempt) => `${attempt.join('\t')}\n`).join(''),
    encoding: 'utf8',
    cwd: '/',
    stdio: ['pipe', 'pipe', 'pipe', descriptor],
  })
  const results = stdout.trim().split('\n').map(Number)
  if (status !== 0 || results.length !== attempts.length) throw new Error(`attempts: ${stderr}`)
  const names = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]))
  return {
    done: attempts.filter((_, index) => results[index] === 0),
    errors: new Set(results.flatMap((result) => (result === 0 ? [] : (names.get(result) ?? `${result}`)))),
  }
}
