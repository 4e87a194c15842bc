export type Operation = 'export' | 'import' | 'move' | 'arrival'

/** Called before each step of an operation; tests let it fail there. */
export type AtStep = (operation: Operation, step: string) => Promise<void>
