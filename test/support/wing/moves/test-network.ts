import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'

/** The hosts of the network. Controllers and etcd are at the last one. */
export const PLACES = ['a', 'b', 'c'] as const
export type Place = (typeof PLACES)[number]

/** Of `c`, between controllers and etcd, and between its members. */
const LOOPBACK = '127.0.0.1'

export function addressOf(place: Place): string {
  return `10.77.0.${PLACES.indexOf(place) + 1}`
}

/** What happens to what two places send each other: nothing arrives, connections are reset, or most is lost. */
export type Disturbance = 'drop' | 'reset' | 'slow'

const TABLE = 'inet disturbed'

/** Three network namespaces with an address each. They end with this process at the latest. */
export class TestNetwork {
  readonly #keepers: Readonly<Record<Place, ChildProcess>>

  private constructor(keepers: Readonly<Record<Place, ChildProcess>>) {
    this.#keepers = keepers
  }

  static async make(): Promise<TestNetwork> {
    const [a, b, c] = await Promise.all([keeper(), keeper(), keeper()])
    const network = new TestNetwork({ a, b, c })
    network.#run('c', 'ip', 'link', 'add', 'lan', 'type', 'bridge')
    network.#up('c', 'lan')
    for (const place of ['a', 'b'] as const) {
      const other = ['peer', 'name', 'lan', 'netns', `${network.#keepers[place].pid}`]
      network.#run('c', 'ip', 'link', 'add', `to-${place}`, 'type', 'veth', ...other)
      network.#run('c', 'ip', 'link', 'set', `to-${place}`, 'master', 'lan', 'up')
      network.#up(place, 'lan')
    }
    return network
  }

  /** The words that start a program at a place. */
  enter(place: Place): readonly string[] {
    return ['nsenter', `--net=/proc/${this.#keepers[place].pid}/ns/net`]
  }

  /** Disturbs the traffic between a place and another one, all others or its own, in both directions. */
  disturb(place: Place, peers: readonly Place[], how: Disturbance): void {
    const rules = (direction: 'saddr' | 'daddr') =>
      peers
        .map((peer) => (peer === place ? LOOPBACK : addressOf(peer)))
        .map((address) => `ip ${direction} ${address} ${VERDICTS[how]}`)
        .join('\n')
    const chain = (hook: string, direction: 'saddr' | 'daddr') =>
      `chain ${hook} { type filter hook ${hook} priority 0; policy accept;\n${rules(direction)}\n}`
    const table = `table ${TABLE} {\n${chain('input', 'saddr')}\n${chain('output', 'daddr')}\n}`
    this.#nft(place, `${table}\n`)
  }

  /** Ends all disturbances of a place. */
  calm(place: Place): void {
    this.#nft(place, `add table ${TABLE}\ndelete table ${TABLE}\n`)
  }

  end(): void {
    for (const keeper of Object.values(this.#keepers)) keeper.kill('SIGKILL')
  }

  #up(place: Place, link: string): void {
    this.#run(place, 'ip', 'address', 'add', `${addressOf(place)}/24`, 'dev', link)
    for (const name of ['lo', link]) this.#run(place, 'ip', 'link', 'set', name, 'up')
  }

  #run(place: Place, ...words: readonly string[]): void {
    const [program = '', ...all] = [...this.enter(place), ...words]
    execFileSync(program, all, { stdio: ['ignore', 'ignore', 'inherit'] })
  }

  #nft(place: Place, input: string): void {
    const [program = '', ...all] = [...this.enter(place), 'nft', '-f', '-']
    execFileSync(program, all, { input, stdio: ['pipe', 'ignore', 'inherit'] })
  }
}

const VERDICTS: Readonly<Record<Disturbance, string>> = {
  drop: 'drop',
  reset: 'meta l4proto tcp reject with tcp reset',
  slow: 'limit rate over 4 mbytes/second drop',
}

/** A process in a network namespace of its own. */
async function keeper(): Promise<ChildProcess> {
  const words = ['--pdeathsig', 'KILL', 'unshare', '--net', 'sh', '-c', 'echo there; exec sleep infinity']
  const child = spawn('setpriv', words, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  return child
}
