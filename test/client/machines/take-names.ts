import { createInterface } from 'node:readline'
import { AgentError } from '../../../src/base/errors.ts'
import { registerMachine } from '../../../src/client/machines/register.ts'

/**
 * `take-names.ts FOLDER…` prints `ready`, and from the time in the first line of stdin takes the name `web` in each folder,
 * one every 2 ms. It prints the folders where it succeeded and `done`, and keeps the names until stdin ends.
 */
const folders = process.argv.slice(2)
const EVERY_MS = 2

function isTaken(folder: string): boolean {
  try {
    registerMachine(folder, 'web')
    return true
  } catch (error) {
    if (error instanceof AgentError && error.code === 'ALREADY_EXISTS') return false
    throw error
  }
}

createInterface({ input: process.stdin }).once('line', (line) => {
  const begin = Number(line)
  const taken = folders.filter((folder, index) => {
    // A busy wait: a timer is not exact enough for two processes to meet.
    while (Date.now() < begin + index * EVERY_MS);
    return isTaken(folder)
  })
  process.stdout.write(`${[...taken, 'done'].join('\n')}\n`)
})
process.stdout.write('ready\n')
