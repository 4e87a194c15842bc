import { writeSync } from 'node:fs'
import { expect } from 'vitest'
import type { MovesFigures } from '../../../../../scripts/test/moves-run.ts'
import { messageOf } from '../../../../../src/base/errors.ts'
import { Fleet, type FleetOptions } from '../fleet.ts'
import { type Fault, type StepFault, textOf } from './move-faults.ts'
import { MovingMachine } from './random-moves.ts'

/** Moves of one machine, whose disk is full some time. */
const OF_ONE_MACHINE = 40
const MOST_FAILURES = 10

/**
 * One move with each fault, of a machine that is another one after a failure. Returns how many moves there were, and what must not have
 * been, each with the fault and what `named` says of its number.
 */
export async function runMoves(
  faults: Iterable<Fault | StepFault>,
  {
    isOver = () => false,
    named = () => '',
    onFigure,
    ...options
  }: FleetOptions & {
    readonly isOver?: () => boolean
    readonly named?: (number: number) => string
    readonly onFigure: (figure: MovesFigures, number: number) => void
  },
): Promise<{ readonly count: number; readonly failures: readonly string[] }> {
  const failures: string[] = []
  const left = faults[Symbol.iterator]()
  let count = 0
  for (let fault = left.next(); fault.done !== true && failures.length < MOST_FAILURES; ) {
    if (isOver()) break
    const fleet = await Fleet.start(options)
    try {
      const machine = new MovingMachine(fleet)
      await machine.boot()
      for (let of = 0; of < OF_ONE_MACHINE && fault.done !== true && !isOver(); of++) {
        const present = fault.value
        fault = left.next()
        count += 1
        const figure = await machine.move(present).catch((error) => {
          throw new Error(`move ${count}${named(count)}: ${textOf(present)}: ${messageOf(error)}`)
        })
        onFigure(figure, count)
      }
      expect(await fleet.end()).toEqual([])
    } catch (error) {
      failures.push(messageOf(error))
      writeSync(1, `${messageOf(error)}\n${fleet.logs()}\n`)
      await fleet.kill()
    }
  }
  return { count, failures }
}
