import type { Operation } from '../../src/gen/microvm/instance/v1/instance.ts'

/** For how long each step of an operation took, in milliseconds. */
export function stepsOf(operation: Operation | undefined): Readonly<Record<string, number>> {
  const steps = operation?.steps ?? []
  return Object.fromEntries(steps.map(({ durationUs, name }) => [name, Number(durationUs) / 1000]))
}
