import sys,time,numpy as np,asker,os
sys.path[:0]=['src']
from asker.applications.bundle import *
from asker.applications.bundle.bal import read_bal
from asker.applications.bundle.problem import bundle_problem
from asker.strategies import METHODS
from asker.strategies.with_moves import WithMoves
D=os.environ['ASKER_DATA']+'/bal'
import glob
def mean_over(h,T):
    t=np.array([x.seconds for x in h]); c=np.array([x.best_cost for x in h]); 
    g=np.linspace(0,T,2000); return c[np.clip(np.searchsorted(t,g,side='right')-1,0,len(c)-1)].mean()
for f in sorted(glob.glob(D+'/*')):
    if not f.endswith(('bz2','txt')): continue
    b=read_bal(f); p=bundle_problem(b,asker.SmoothTruncated(1.0)).problem
    asker.solve(p,asker.ASKER(),max_iterations=3); asker.solve(p,WithMoves(),max_iterations=12)
    r0=asker.solve(p,asker.ASKER(),max_iterations=100,tol=0); T=r0.seconds['total']
    rm=asker.solve(p,METHODS['moo'](),max_iterations=100,tol=0)
    print(os.path.basename(f),'plain %.1f in %.2fs mean %.1f'%(r0.cost,T,mean_over(r0.history,T)),'moo %.1f mean %.1f (%.2fs)'%(rm.cost,mean_over(rm.history,T),rm.seconds['total']),flush=True)
    for kw in ({},dict(trials=4),dict(share=.2),dict(steps=3),dict(steps=8),dict(trials=16)):
        r=asker.solve(p,WithMoves(**kw),max_iterations=100,time_limit=T)
        print('   ',kw,'%.1f in %.2fs it %d mean %.1f'%(r.cost,r.seconds['total'],r.iterations,mean_over(r.history,T)),r.status.name,flush=True)
