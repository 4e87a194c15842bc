import { isDeepStrictEqual } from 'node:util'
import type { Fleet, HostId } from './fleet.ts'
import { type JournalLine, type JournalRecord, journalLines, readJournal } from './journal.ts'

const NOTHING_PRINTED: JournalLine = { number: 0, boot: 1, isConflict: false, isAfterCut: false }

type Machine = Pick<Fleet, 'journal' | 'printed' | 'chain'>

/** What a machine has written, printed and been run by, from its first boot on. Each look throws for what must not be. */
export class History {
  readonly #fleet: Machine
  #last: JournalRecord = { number: 0, boot: 1, time: 0n }
  #printed = NOTHING_PRINTED
  /** How many bytes the console had when it was looked at last. */
  #printedBytes = 0
  /** Each boot is one that was asked for. */
  #boots = 1

  constructor(fleet: Machine) {
    this.#fleet = fleet
  }

  /** The machine has ended, and is started again. Throws unless it was killed with a holder, or has ended with its lease. */
  bootsAgain({
    hasLeaseEnded = false,
    holdersKilled,
  }: {
    readonly hasLeaseEnded?: boolean
    readonly holdersKilled: number
  }): void {
    if (holdersKilled === 0 && !hasLeaseEnded)
      throw new Error('the machine has ended, and nothing has killed it')
    this.#boots += 1
  }

  /** How many records there are. */
  get length(): number {
    return this.#last.number
  }

  /** How many of them were printed when it was looked last. */
  get printed(): number {
    return this.#printed.number
  }

  /** Reads the records that have come. One machine alone has written them, one after the other. */
  lookAtJournal(): void {
    for (const record of readJournal(this.#fleet.journal, this.#last.number)) {
      const { number, boot, time } = this.#last
      const isNext = record.boot === boot && record.time > time
      const isBoot = record.boot === boot + 1 && record.boot <= this.#boots
      if (record.number !== number + 1 || !(isNext || isBoot))
        throw new Error(`journal: after ${show(this.#last)} comes ${show(record)}, of ${this.#boots} boots`)
      this.#last = record
    }
  }

  /** Reads the console of the host that runs the machine, which has all bytes from the first boot on. Each line is there once. */
  async lookAtConsole(host: HostId): Promise<void> {
    const { bytes, first } = await this.#fleet.printed(host)
    if (first > 0n) throw new Error(`console: the first ${first} bytes are lost`)
    const text = bytes.toString('latin1')
    const lines = journalLines(text)
    for (const [index, line] of lines.entries()) checkLine(lines[index - 1] ?? NOTHING_PRINTED, line)
    const known = journalLines(text.slice(0, this.#printedBytes)).at(-1) ?? NOTHING_PRINTED
    if (text.length < this.#printedBytes || !isDeepStrictEqual(known, this.#printed))
      throw new Error(
        `console: its first ${this.#printedBytes} bytes end with ${JSON.stringify(known)}, and have ended with ${JSON.stringify(this.#printed)}`,
      )
    this.#printedBytes = text.length
    this.#printed = lines.at(-1) ?? NOTHING_PRINTED
    // The journal is written before.
    this.lookAtJournal()
    if (this.#printed.number > this.#last.number)
      throw new Error(
        `console: ${this.#printed.number} was printed, and the journal ends with ${this.#last.number}`,
      )
  }

  /** Reads who was authoritative. The last one is of the host that runs the machine. */
  lookAtChain(host: HostId): void {
    const chain = this.#fleet.chain()
    const text = JSON.stringify(chain)
    for (const [index, link] of chain.entries()) {
      const before = chain[index - 1]
      if (before === undefined) continue
      const earlier = chain.slice(0, index).filter(({ pod }) => pod === link.pod)
      const isNewest = earlier.every(({ run }) => BigInt(run) < BigInt(link.run))
      if (link.generation !== before.generation + 1 || !isNewest) throw new Error(`chain: ${text}`)
    }
    const last = chain.at(-1)
    if (last !== undefined && !last.pod.startsWith(`${host}/`))
      throw new Error(`chain: ${host} runs the machine, and not ${last.pod}`)
  }
}

/** A boot that is killed may have written a record that it has not printed. */
function checkLine(before: JournalLine, line: JournalLine): void {
  const isNext = line.boot === before.boot && line.number === before.number + 1 && !line.isAfterCut
  const isBoot = line.boot > before.boot && line.number > before.number
  if (line.isConflict || !(isNext || isBoot))
    throw new Error(`console: after ${JSON.stringify(before)} comes ${JSON.stringify(line)}`)
}

function show({ number, boot, time }: JournalRecord): string {
  return `record ${number} of boot ${boot} at ${time}`
}
